"""The pytest session: takes options and cases; schedules rounds within the budget; gives progress,
tables, results and the exit status; resumes what was interrupted.
Leaves timing to measure/ and verdicts to judge/. Never imports TensorFlow."""
