package rules

// freeCreditOf is the counter of what free credit has paid for an account on all apps. LimitReported says that it pays
// no more.
func freeCreditOf(accountID string) string { return "free/" + accountID }

// EndFreeCredit ends the free credit of an account, because another account has paid by the same card before (decision
// 129). Calls that free credit holds already are paid by it. If it has ended, the outcome is Done.
type EndFreeCredit struct{ AccountID string }

func (c EndFreeCredit) addKeys(keys *RowKeys) { keys.Counters[freeCreditOf(c.AccountID)] = 0 }

func (c EndFreeCredit) apply(s *State, _ int64) (Result, error) {
	counter := s.Counters[freeCreditOf(c.AccountID)]
	if counter.LimitReported {
		return Result{Outcome: Done}, nil
	}
	counter.LimitReported = true
	s.Changes.Counters[freeCreditOf(c.AccountID)], s.Changes.MustSync = true, true
	return Result{}, nil
}
