package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// serveMetrics answers GET /metrics on a separate listener until ctx ends. The
// operator chooses an address that only the monitoring reaches.
func (s *Server) serveMetrics(ctx context.Context, l net.Listener) error {
	routes := http.NewServeMux()
	routes.Handle("GET /metrics", s.metrics.Handler())
	server := &http.Server{
		Handler:        routes,
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		ReadTimeout:    10 * time.Second,
		WriteTimeout:   30 * time.Second,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() {
		if err := server.Close(); err != nil {
			s.log.Warn("metrics listener not closed", "error", err)
		}
	})
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
