"""The cluster behind a simulated GKE or EKS: a real control plane, kwok nodes, and the cloud's own objects."""
