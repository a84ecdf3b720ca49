"""Cluster behind a simulated GKE or EKS cluster: a real control plane, kwok nodes, and the cloud's own objects."""
