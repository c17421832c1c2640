package operator

import (
	"context"
	"net/http"
	"slices"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/web"
)

// resealing is the answer of POST /v1/operator/secrets/reseal.
type resealing struct {
	Object     string           `json:"object"`
	Resealed   int64            `json:"resealed"`
	Unreadable int64            `json:"unreadable"`
	Columns    []resealedColumn `json:"columns"`
}

type resealedColumn struct {
	Column     string `json:"column"`
	Values     int64  `json:"values"`
	Resealed   int64  `json:"resealed"`
	Unreadable int64  `json:"unreadable"`
}

// Reseal seals every secret at rest under the first envelope key. The log has that it began: a run may end in the
// middle. If a secret opens under none of the keys, the value that nodes check at their start stays under the old key.
func (d *Service) Reseal(ctx context.Context, by string) (out resealing, err error) {
	begun := action{by: by, what: "reseal_begun", subject: "secrets"}
	if err := d.runAction(ctx, &begun, func(context.Context, *db.Tx) error { return nil }); err != nil {
		return out, err
	}
	var list []seal.Report
	columns := append(slices.Clone(d.Sealed), seal.Settings(d.DB))
	for i, c := range columns {
		if i == len(columns)-1 && newResealing(list).Unreadable > 0 {
			break
		}
		r, err := d.Box.Reseal(db.ForJob(ctx), c)
		if err != nil {
			return out, err
		}
		list = append(list, r)
	}
	out = newResealing(list)
	a := action{by: by, what: "reseal", subject: "secrets"}
	return out, d.runAction(ctx, &a, func(context.Context, *db.Tx) error {
		a.after = out
		return nil
	})
}

func newResealing(list []seal.Report) resealing {
	out := resealing{Object: "resealing"}
	for _, r := range list {
		out.Resealed += r.Resealed
		out.Unreadable += r.Unreadable
		out.Columns = append(out.Columns, resealedColumn{r.Column, r.Values, r.Resealed, r.Unreadable})
	}
	return out
}

func (h *Handler) reseal(w http.ResponseWriter, r *http.Request) error {
	out, err := h.Service.Reseal(r.Context(), actorOf(r))
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, out)
}
