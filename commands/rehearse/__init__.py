"""`make rehearse`: create and destroy a cloud stack in a simulated cloud, and report what ran where."""
