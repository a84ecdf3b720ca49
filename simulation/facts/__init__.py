"""Update the tables in `simulation/cloud/facts` from a Terraform provider's source."""
