package operator

import (
	"context"
	"net/http"

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

// Reseal seals every secret at rest under the first envelope key.
func (d *Service) Reseal(ctx context.Context, by string) (list []seal.Report, err error) {
	for _, c := range d.Sealed {
		r, err := d.Box.Reseal(db.ForJob(ctx), c)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	a := action{by: by, what: "reseal", subject: "secrets"}
	return list, d.runAction(ctx, &a, func(context.Context, *db.Tx) error {
		a.after = newResealing(list)
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
	list, err := h.Service.Reseal(r.Context(), web.ClientAddress(r))
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, newResealing(list))
}
