package lab

import (
	"context"
	"io"
	"net/http"
)

// Page is the answer to an HTTP request.
type Page struct {
	Code   int
	Header http.Header
	Body   string
}

// Get makes an HTTP request from inside the namespace, over a connection of its own.
func (n *Namespace) Get(ctx context.Context, url string) (p Page, err error) {
	client := http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return p, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return p, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return Page{Code: answer.StatusCode, Header: answer.Header, Body: string(body)}, err
}
