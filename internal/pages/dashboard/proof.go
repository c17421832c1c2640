package dashboard

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/proofs"
	"github.com/purserhq/purser/internal/people/accounts"
)

// linkProof links to the proof of a ledger row.
func linkProof(entryID string) ui.Link {
	return ui.Link{Href: "/activity/" + entryID + "/proof", Text: "Prove it"}
}

// showProof is GET /activity/{id}/proof: the page on which the browser checks a row's proof by itself.
func (h *Handler) showProof(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	e, owner, err := h.loadEntry(r.Context(), a, r.PathValue("id"))
	if err != nil {
		return err
	}
	what, err := h.newAppNames().entryName(r.Context(), &e)
	if err != nil {
		return err
	}
	page := ui.Proof{
		Shell: a.Shell(ui.Activities),
		Path:  "/activity/" + e.ID + "/proof",
		For:   owner,
		Entry: what,
		When:  ui.Date(e.CreatedUS),
		ID:    e.ID,
		Back:  "/activity/" + e.ID,
	}
	receipt, err := h.Log.Prove(r.Context(), e.AccountID, e.Seq)
	switch {
	case errors.Is(err, proofs.ErrNotYet):
		page.NotYet = true
	case err != nil:
		return fmt.Errorf("dashboard: %w", err)
	default:
		page.File, page.Key, page.Position = page.Path+".json", receipt.Proof.Key, receipt.Proof.Position
	}
	return ui.Render(w, http.StatusOK, page)
}

// downloadProof is GET /activity/{id}/proof.json: a row with its proof, to keep and to verify anywhere.
func (h *Handler) downloadProof(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	e, _, err := h.loadEntry(r.Context(), a, r.PathValue("id"))
	if err != nil {
		return err
	}
	receipt, err := h.Log.Prove(r.Context(), e.AccountID, e.Seq)
	if err != nil {
		return explainNoProof(err)
	}
	return writeFile(w, "purser-receipt-"+e.ID+".json", receipt)
}

// downloadHistory is GET /activity/history.json: all rows of the account with one proof of them all.
func (h *Handler) downloadHistory(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	history, err := h.Log.OpenHistory(r.Context(), a.ID)
	if err != nil {
		return explainNoProof(err)
	}
	setFileHeaders(w.Header(), "purser-history-"+a.ID+".json")
	out := bufio.NewWriterSize(w, 64<<10)
	if err := history.Write(r.Context(), out); err != nil {
		return fmt.Errorf("dashboard: %w", err)
	}
	return out.Flush()
}

// explainNoProof says why there is no proof.
func explainNoProof(err error) error {
	switch {
	case errors.Is(err, proofs.ErrNotYet):
		return apierr.NotFound.Errorf("This isn’t in the public log yet. Entries get there within a minute.")
	case errors.Is(err, proofs.ErrTooLong):
		return apierr.InvalidRequest.Errorf("Your history is too long for one file. Prove single entries instead.")
	}
	return fmt.Errorf("dashboard: %w", err)
}

// writeFile sends a value as a JSON file to keep.
func writeFile(w http.ResponseWriter, name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("dashboard: %w", err)
	}
	setFileHeaders(w.Header(), name)
	_, err = w.Write(text)
	return err
}

func setFileHeaders(h http.Header, name string) {
	h.Set("Content-Type", "application/json")
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	h.Set("Cache-Control", "private, no-store")
}
