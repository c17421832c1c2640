package shapes

// EffortOfBudget returns the effort that spends about as many tokens as a budget allows.
func EffortOfBudget(tokens int64) string {
	switch {
	case tokens < 4096:
		return "low"
	case tokens < 16384:
		return "medium"
	}
	return "high"
}
