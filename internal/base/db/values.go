package db

// BoolInt is the integer, 0 or 1, in which a column keeps a truth.
func BoolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// NullText is the argument for a column that keeps an empty text as NULL.
func NullText(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// NullInt is the argument for a column that keeps a missing integer as NULL.
func NullInt(n *int64) any {
	if n == nil {
		return nil
	}
	return *n
}
