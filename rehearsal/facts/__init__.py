"""Update the tables in `rehearsal/cloud/facts` from a Terraform provider's source."""
