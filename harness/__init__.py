"""How a figure is measured and judged; see docs/architecture.md."""
