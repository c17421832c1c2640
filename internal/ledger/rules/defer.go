package rules

func (c Defer) addKeys(keys *RowKeys) {
	keys.Connections[c.ConnectionID] = c.AccountID
	keys.Keys[c.key()] = true
	c.Reservations.addKeys(keys)
}

// apply keeps the money held, and stores which record of the provider to ask for. A
// repeated deferral changes nothing; one whose hold has ended is fenced.
func (c Defer) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	row := s.Holds[c.key()]
	if !row.HoldsMoney() || row.Attempt != c.Attempt {
		return Result{Outcome: Fenced, Connection: *conn}, nil
	}
	r := Result{RequestID: row.RequestID, Connection: *conn}
	if row.State == Pending {
		return r, nil
	}
	// Nothing fails from here on.
	pending := *row
	pending.State = Pending
	s.Holds[c.key()], s.Changes.Holds[c.key()] = &pending, true
	s.Changes.Connections[conn.ID], s.Changes.MustSync = true, true // on SQLite the hold may be in memory only
	for _, n := range c.Reservations {
		s.Changes.Counters[n.Subject] = true // their reservations are saved with it
	}
	s.Changes.Deferrals = append(s.Changes.Deferrals, Deferral{
		Key:       c.key(),
		RequestID: row.RequestID,
		Provider:  c.Provider,
		RecordID:  c.RecordID,
		Delivery:  c.Delivery,
		SinceUS:   nowUS,

		DeliveredTokens: c.DeliveredTokens,
	})
	if c.Response != nil {
		s.Changes.Responses = append(s.Changes.Responses, ResponseRow{row.RequestID, *c.Response, nowUS})
	}
	return r, nil
}
