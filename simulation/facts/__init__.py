"""Reader of Terraform providers' sources. It updates the tables in `simulation/cloud/facts`."""
