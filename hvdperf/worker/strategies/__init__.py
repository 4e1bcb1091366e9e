"""How a rank trains: takes its config, gives the Trainer of base.py, one module a strategy.
Never times a block and never talks to the session."""
