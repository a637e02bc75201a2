package rate

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// ServeHTTP answers with the connections since a time, in nanoseconds since 1970: "/?since=0" returns all.
func (c *Client) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	since, err := strconv.ParseInt(r.URL.Query().Get("since"), 10, 64)
	if err != nil {
		http.Error(w, fmt.Sprintf("read the parameter since: %v", err), http.StatusBadRequest)
		return
	}
	if err := json.NewEncoder(w).Encode(c.Since(time.Unix(0, since))); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// Fetch gets the connections of the client at an address, by way of a dialer.
func Fetch(at string, since time.Time, dial func(ctx context.Context, network, address string) (net.Conn, error)) (list []Attempt, err error) {
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	url := fmt.Sprintf("http://%s/?since=%d", at, since.UnixNano())
	answer, err := client.Get(url)
	if err != nil {
		return nil, fmt.Errorf("ask the client at %s for its connections: %w", at, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask the client at %s for its connections: %s", at, answer.Status)
	}
	if err := json.NewDecoder(answer.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("read the connections of the client at %s: %w", at, err)
	}
	return list, nil
}
