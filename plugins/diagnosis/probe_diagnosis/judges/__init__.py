"""What may change a verdict after the policy, one judge a file."""
