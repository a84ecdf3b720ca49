module trainyard.invalid/pause

go 1.24.0
