"""What is asked: takes options, profiles, thresholds and data sets; gives arms, comparisons and
faults. Checks everything before anything starts. Never starts a rank and never measures."""
