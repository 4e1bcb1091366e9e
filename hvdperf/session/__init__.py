"""The pytest session. From options and cases it schedules rounds in the time given; it shows
progress and tables, writes results, sets the exit status, and resumes interrupted sessions.
It leaves timing to work/ and verdicts to judge/. It never imports TensorFlow."""
