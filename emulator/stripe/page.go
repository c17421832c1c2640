package stripe

import (
	"html/template"
	"net/http"
)

// payPage is the Checkout page.
var payPage = template.Must(template.New("pay").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,"><title>Emulated checkout</title>
<style>
body{font:16px/1.5 sans-serif;max-width:26rem;margin:3rem auto;padding:0 1rem}
button{font:inherit;display:block;width:100%;padding:.7rem;margin:.6rem 0;border-radius:.5rem;border:1px solid #888}
button{cursor:pointer}label{display:block;padding:.25rem 0}fieldset{border:1px solid #888;border-radius:.5rem}
input[type=radio]{margin:0 .5rem 0 0}
button.pay{background:#1a5cff;color:#fff;border-color:#1a5cff}small{opacity:.75}
</style></head>
<body><h1>Emulated checkout</h1><p>This page stands in for Stripe’s. No money moves and no card is asked for.</p>
<p>Purser top-up: <strong>{{.Amount}}</strong>{{with .Tax}}, with {{.}} of tax{{end}}</p>
{{if .Open}}<form method="post">
{{if .Save}}<fieldset><legend>Card to save</legend>
{{range .Cards}}<label>
<input type="radio" name="card" value="{{.ID}}"{{if eq .ID "works"}} checked{{end}}>{{.Text}}</label>{{end}}</fieldset>
<p>By paying you allow Purser to charge this card in future, as you set it up there.</p>{{end}}
{{if .TaxIDs}}<label>Tax ID of your business, if you have one <input name="tax_id"></label>{{end}}
<button class="pay" name="do" value="pay">Pay {{.Amount}}</button>
{{if not .Save}}<button name="do" value="later">Pay by bank debit, which takes days</button>{{end}}
<button name="do" value="fail">Let the card be declined</button>
<button name="do" value="cancel">Cancel and go back</button></form>
{{if .Declined}}<p role="alert"><strong>The card was declined.</strong> Try again, or go back.</p>{{end}}
{{else}}<p>This session is over. <a href="{{.Back}}">Back to the shop</a></p>{{end}}
<p><small>{{.ID}}</small></p></body></html>
`))

// showPage serves GET /pay/{id}.
func (s *Server) showPage(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session, ok := s.sessions[r.PathValue("id")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	details, _ := session["total_details"].(object)
	tax := ""
	if isEnabled(session, "automatic_tax") {
		tax = dollars(details["amount_tax"])
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = payPage.Execute(w, map[string]any{ // the client may have disconnected
		"ID":       session["id"],
		"Amount":   dollars(session["amount_total"]),
		"Tax":      tax,
		"TaxIDs":   isEnabled(session, "tax_id_collection"),
		"Open":     session["status"] == "open",
		"Save":     session["setup_future_usage"] == "off_session",
		"Cards":    cardChoices,
		"Back":     session["success_url"],
		"Declined": r.URL.Query().Has("declined"),
	})
}

// clickButton serves POST /pay/{id}: a click on a button of the page.
func (s *Server) clickButton(w http.ResponseWriter, r *http.Request) {
	id, do := r.PathValue("id"), r.FormValue("do")
	s.mu.Lock()
	session, ok := s.sessions[id]
	s.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	next, _ := session["success_url"].(string)
	switch do {
	case "fail":
		next = "/pay/" + id + "?declined"
	case "cancel":
		next, _ = session["cancel_url"].(string)
	default:
		if err := s.Steer(id, do, r.PostForm); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	http.Redirect(w, r, next, http.StatusSeeOther)
}
