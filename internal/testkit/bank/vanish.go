package bank

// Vanish deletes a developer's account, a customer or a card at Stripe, as somebody may in Stripe's dashboard.
func (p *Player) Vanish(s Step) error {
	developer := p.Apps[s.A%len(p.Apps)].Developer
	if payee := p.payees[developer]; s.B%3 == 0 && payee != "" {
		delete(p.payees, developer)
		p.Book.Payable[p.People[developer]] = false
		return p.steer(payee, "vanish")
	}
	column := []string{"payment_method", "customer"}[s.B%2]
	list, err := ids(p.Book, `SELECT `+column+` FROM auto_topups WHERE `+column+` IS NOT NULL ORDER BY account_id`)
	if err != nil || len(list) == 0 {
		return err
	}
	return p.steer(list[s.C%len(list)], "vanish")
}
