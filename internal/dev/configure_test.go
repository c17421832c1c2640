package dev

import (
	"net"
	"testing"
)

// TestDevReadsThePriceList: the price list of the environment is used, not ignored.
func TestDevReadsThePriceList(t *testing.T) {
	t.Parallel()
	c, err := readConfig(Options{Data: t.TempDir(), Listen: "127.0.0.1:0", PricesFile: "/etc/purser/prices.yaml"},
		&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080})
	if err != nil || c.PricesFile != "/etc/purser/prices.yaml" {
		t.Errorf("%q, %v", c.PricesFile, err)
	}
}
