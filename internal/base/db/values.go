package db

// BoolInt returns the value of a boolean column: 0 or 1.
func BoolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// NullText returns the argument for a column in which an empty text is NULL.
func NullText(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// NullInt returns the argument for a column in which a missing integer is NULL.
func NullInt(n *int64) any {
	if n == nil {
		return nil
	}
	return *n
}
