package ui

// Payouts is what a developer's apps have earned, and where it is paid to.
type Payouts struct {
	Console
	Off      bool   // this server pays no developers
	Sandbox  bool   // of a test account
	Payee    string // enabled, submitted, begun or gone; "" = none
	Minimum  string // of a payout
	Every    string // how often payouts are made
	Days     int    // after which margin becomes payable
	Password bool   // ask for the account's password
	Apps     []PayoutApp
	List     []Payout // newest first
	Months   []RevenueMonth
}

// RevenueMonth is a month of which there is a revenue statement, as PDF and as CSV.
type RevenueMonth struct {
	Name string
	File string // its address without .pdf or .csv
}

// PayoutApp is the margin of an app.
type PayoutApp struct {
	ID, Name                                 string
	Earned, Paid, Disputed, Waiting, Payable string
	Owed                                     string // came back after it was paid; "" = nothing
	Next                                     string // when the next payout is due; "" = there is too little
}

// Payout is a payout of an app's margin.
type Payout struct {
	ID, App, Amount, When string
	Status                string // begun, paid or failed
	Reason                string // why it failed
}

func (Payouts) name() string { return "developer/payouts" }

// ErrorOf returns the problem of a field, or "".
func (p Payouts) ErrorOf(field string) string { return errorOf(p.Errors, field) }
