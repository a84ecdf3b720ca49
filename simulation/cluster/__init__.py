"""Cluster behind a simulated GKE or EKS cluster: a real control plane, nodes of kwok, and the objects of the cloud."""
