package seal

import (
	"context"
	"fmt"

	"github.com/purserhq/purser/internal/base/db"
)

// A Column is a column of sealed values, of which the owner says how to list and to replace them.
type Column struct {
	Name string // table.column
	// List returns values with an ID above after, by their IDs, at most limit.
	List func(ctx context.Context, after string, limit int) ([]Item, error)
	// Replace stores another sealed value, unless the item's has changed meanwhile.
	Replace func(ctx context.Context, item Item, sealed []byte) error
}

// TableColumn returns the Column of a table's values whose place follows from their IDs. The query list takes the ID
// after which to begin and a limit, and returns IDs and values; the statement replace takes the new value, the ID, and
// the value that must still be there.
func TableColumn(d *db.DB, name, list, replace string, place func(id string) Place) Column {
	return Column{
		Name: name,
		List: func(ctx context.Context, after string, limit int) ([]Item, error) {
			return db.QueryAll(ctx, d, func(r db.Row) (item Item, err error) {
				err = r.Scan(&item.ID, &item.Sealed)
				item.Place = place(item.ID)
				return item, err
			}, list, after, limit)
		},
		Replace: func(ctx context.Context, item Item, sealed []byte) error {
			_, err := d.ExecContext(ctx, replace, sealed, item.ID, item.Sealed)
			return err
		},
	}
}

// An Item is a value of a Column.
type Item struct {
	ID     string // orders the values of a Column
	Sealed []byte
	Place  Place
}

// A Report says what Reseal has done with a Column.
type Report struct {
	Column     string
	Values     int64
	Resealed   int64 // were under another key than the first
	Unreadable int64 // open under none of the keys
}

// pageItems is how many values are in memory at a time.
const pageItems = 200

// Reseal seals each value of a column under the first key that is not. Nodes may run and write meanwhile, and a run
// that was interrupted is repeated.
func (b *Box) Reseal(ctx context.Context, c Column) (Report, error) {
	r := Report{Column: c.Name}
	for after := ""; ; {
		list, err := c.List(ctx, after, pageItems)
		if err != nil {
			return r, fmt.Errorf("seal: %s: %w", c.Name, err)
		}
		for _, item := range list {
			r.Values++
			plain, key, err := b.open(item.Sealed, item.Place)
			if err != nil {
				r.Unreadable++
				continue
			}
			if key == 0 {
				continue
			}
			sealed, err := b.Seal(plain, item.Place)
			if err != nil {
				return r, err
			}
			if err := c.Replace(ctx, item, sealed); err != nil {
				return r, fmt.Errorf("seal: %s: %w", c.Name, err)
			}
			r.Resealed++
		}
		if len(list) < pageItems {
			return r, nil
		}
		after = list[len(list)-1].ID
	}
}
