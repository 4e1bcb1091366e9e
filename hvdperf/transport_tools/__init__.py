"""What other tools that time collective operations print, understood. Text in, figures out."""
