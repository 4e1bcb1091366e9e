"""What the suite itself costs: paired measurements, in one session; `make bench` runs them."""
