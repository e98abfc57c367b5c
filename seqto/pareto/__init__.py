"""The Pareto front of what was measured, and limits that its members have to meet."""
