"""Read a Terraform provider's source and keep the tables of facts in `rehearsal/cloud/facts` current."""
