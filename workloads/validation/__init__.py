"""What about a job cannot be: each rule says what is wrong, what is allowed and what to do."""
