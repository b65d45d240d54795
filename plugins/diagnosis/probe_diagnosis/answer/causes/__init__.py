"""The causes of differences: findings on calls, conditions and phases of a step."""
