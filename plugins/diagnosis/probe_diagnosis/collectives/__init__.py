"""What is known of communication between ranks: the APIs, their calls on record, the law of each."""
