"""Dashboard: one page in the browser with the jobs, ranks, curves, nodes and cost of stacks. It changes nothing."""
