package stripe

import (
	"fmt"
	"html/template"
	"net/http"
	"net/url"
)

// taxPercent is the rate of the emulated Stripe Tax, everywhere.
const taxPercent = 20

// checkTax returns why Stripe refuses what a session says of invoices and taxes, or nil.
func checkTax(f url.Values) *apiError {
	enabled := func(name string) bool { return f.Get(name+"[enabled]") == "true" }
	customer := f.Get("customer") != ""
	switch {
	case enabled("tax_id_collection") && customer && f.Get("customer_update[name]") != "auto":
		return badRequest("Tax ID collection requires updating business name on the customer.")
	case enabled("automatic_tax") && customer && f.Get("customer_update[address]") != "auto":
		return badRequest("Automatic tax calculation in Checkout requires a valid address on the Customer.")
	case !customer && (f.Has("customer_update[name]") || f.Has("customer_update[address]")):
		return badRequest("`customer_update` can only be used with `customer`.")
	}
	return nil
}

// addTax adds to a new session what its form says of invoices and taxes. Tax that is not included in the price comes on
// top of it.
func addTax(session object, f url.Values, cents int64) {
	tax := int64(0)
	if f.Get("automatic_tax[enabled]") == "true" {
		if f.Get("line_items[0][price_data][tax_behavior]") == "inclusive" {
			tax = cents - cents*100/(100+taxPercent)
		} else {
			tax = cents * taxPercent / 100
			session["amount_total"] = cents + tax
		}
	}
	session["invoice"] = nil
	session["invoice_creation"] = object{"enabled": f.Get("invoice_creation[enabled]") == "true"}
	session["tax_id_collection"] = object{"enabled": f.Get("tax_id_collection[enabled]") == "true"}
	session["automatic_tax"] = object{"enabled": f.Get("automatic_tax[enabled]") == "true"}
	session["total_details"] = object{"amount_tax": tax}
}

// isEnabled reports whether a session has a part such as invoice_creation.
func isEnabled(session object, part string) bool {
	o, _ := session[part].(object)
	return o["enabled"] == true
}

// issueInvoice makes the invoice of a session that is paid, if it shall have one.
func (s *Server) issueInvoice(session object) {
	if !isEnabled(session, "invoice_creation") {
		return
	}
	id := newID("in_")
	session["invoice"] = id
	s.invoices[id] = object{
		"id":       id,
		"object":   "invoice",
		"status":   "paid",
		"total":    session["amount_total"],
		"currency": session["currency"],
		"livemode": false,
		"tax":      session["total_details"].(object)["amount_tax"],
		"tax_id":   session["tax_id"],
	}
}

// invoicePage is the page of an invoice.
var invoicePage = template.Must(template.New("invoice").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,"><title>Emulated invoice</title>
<style>body{font:16px/1.5 sans-serif;max-width:26rem;margin:3rem auto;padding:0 1rem}</style></head>
<body><h1>Emulated invoice</h1><p>This page stands in for Stripe’s.</p>
<p>Paid: <strong>{{.Amount}}</strong></p>
{{with .Tax}}<p>Tax included: {{.}}</p>{{end}}
{{with .TaxID}}<p>Tax ID: {{.}}</p>{{end}}
<p><small>{{.ID}}</small></p></body></html>
`))

// showInvoice serves GET /invoice/{id}.
func (s *Server) showInvoice(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	invoice, ok := s.invoices[r.PathValue("id")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	page := map[string]any{"ID": invoice["id"], "Amount": dollars(invoice["total"]), "TaxID": invoice["tax_id"]}
	if invoice["tax"] != int64(0) {
		page["Tax"] = dollars(invoice["tax"])
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = invoicePage.Execute(w, page) // the client may have disconnected
}

// dollars writes cents as dollars.
func dollars(n any) string {
	cents, _ := n.(int64)
	return fmt.Sprintf("$%d.%02d", cents/100, cents%100)
}
