package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// files holds the keys and certificates of the API server and the tokens of its clients.
type files struct {
	dir string
	ca  []byte // PEM
}

func (f files) path(name string) string { return filepath.Join(f.dir, name) }

// certificateLife is long enough for a test in a debugger.
const certificateLife = 24 * time.Hour

// writeCredentials makes a certificate authority, the server's certificate for its addresses, the key that signs tokens of
// ServiceAccounts, and the file with the fixed tokens.
func writeCredentials(dir string, server []netip.Addr, tokens string) (files, error) {
	f := files{dir: dir}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return f, fmt.Errorf("make a key: %w", err)
	}
	ca := certificate("e2e authority")
	ca.IsCA, ca.KeyUsage = true, x509.KeyUsageCertSign
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return f, fmt.Errorf("make the authority's certificate: %w", err)
	}
	f.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	if err := f.write("ca.crt", "CERTIFICATE", caDER); err != nil {
		return f, err
	}
	if err := f.server(server, ca, caKey); err != nil {
		return f, err
	}
	signer, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return f, fmt.Errorf("make the key for tokens: %w", err)
	}
	if err := f.write("sa.key", "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(signer)); err != nil {
		return f, err
	}
	return f, os.WriteFile(f.path("tokens.csv"), []byte(tokens), 0o600)
}

func certificate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certificateLife),
	}
}

func (f files) server(addresses []netip.Addr, ca *x509.Certificate, caKey *ecdsa.PrivateKey) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the server's key: %w", err)
	}
	cert := certificate("kube-apiserver")
	cert.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	for _, a := range addresses {
		cert.IPAddresses = append(cert.IPAddresses, a.AsSlice())
	}
	cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, cert, ca, &key.PublicKey, caKey)
	if err != nil {
		return fmt.Errorf("make the server's certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode the server's key: %w", err)
	}
	if err := f.write("server.key", "PRIVATE KEY", keyDER); err != nil {
		return err
	}
	return f.write("server.crt", "CERTIFICATE", der)
}

func (f files) write(name, kind string, der []byte) error {
	return os.WriteFile(f.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
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
