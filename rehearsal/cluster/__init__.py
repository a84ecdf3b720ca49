"""The cluster behind a simulated GKE or EKS: a real control plane, nodes played by kwok, and what the cloud adds."""
