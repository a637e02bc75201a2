package apiserver

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// files holds the keys and certificates of the API server and the tokens of its clients.
type files struct {
	dir string
	ca  []byte // PEM: the server's certificate and that of its authority
}

func (f files) path(name string) string { return filepath.Join(f.dir, name) }

// writeCredentials makes a certificate authority, the server's certificate for its addresses, the key that signs tokens of
// ServiceAccounts, and the file with the fixed tokens.
func writeCredentials(dir string, server []netip.Addr, tokens string) (files, error) {
	f := files{dir: dir}
	ips := []net.IP{net.IPv4(127, 0, 0, 1)}
	for _, a := range server {
		ips = append(ips, a.AsSlice())
	}
	certificates, key, err := cert.GenerateSelfSignedCertKey("kube-apiserver", ips, nil)
	if err != nil {
		return f, fmt.Errorf("make the server's certificate: %w", err)
	}
	f.ca = certificates
	signer, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return f, fmt.Errorf("make the key for tokens: %w", err)
	}
	for name, text := range map[string][]byte{
		"ca.crt": certificates, "server.crt": certificates, "server.key": key, "sa.key": signer, "tokens.csv": []byte(tokens),
	} {
		err = errors.Join(err, os.WriteFile(f.path(name), text, 0o600))
	}
	return f, err
}

// kubeconfig writes a kubeconfig for a token.
func (f files) kubeconfig(name, server, token string) (string, error) {
	c := api.NewConfig()
	c.Clusters["e2e"] = &api.Cluster{Server: server, CertificateAuthorityData: f.ca}
	c.AuthInfos[name] = &api.AuthInfo{Token: token}
	c.Contexts["e2e"] = &api.Context{Cluster: "e2e", AuthInfo: name}
	c.CurrentContext = "e2e"
	path := f.path(name + ".kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		return "", fmt.Errorf("write kubeconfig of %s: %w", name, err)
	}
	return path, nil
}
