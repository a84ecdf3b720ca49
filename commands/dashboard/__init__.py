"""Dashboard: a page in the browser with the jobs, ranks, curves, nodes and costs of stacks. It changes nothing."""
