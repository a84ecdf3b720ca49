"""`make rehearse`: bring a cloud stack up and down against simulated clouds, and report what ran where."""
