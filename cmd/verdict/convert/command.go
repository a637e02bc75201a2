package convert

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
)

// New returns the command.
func New() *cobra.Command {
	return &cobra.Command{
		Use:   "convert [FILE]",
		Short: "Write what ipvsadm or keepalived balances in the short form",
		Long: `Read the output of "ipvsadm -Sn" or a configuration of keepalived, from FILE or from standard input. Write each
virtual server as an object LoadBalancer to standard output, and name what has no counterpart on standard error.`,
		Example: `  ipvsadm -Sn | verdict convert > /etc/verdict/balancers.yaml
  verdict convert /etc/keepalived/keepalived.conf > /etc/verdict/balancers.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return flags.Wrong(fmt.Errorf("convert takes one file, got %q", args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name, text, err := input(cmd.InOrStdin(), args)
			if err != nil {
				return fmt.Errorf("convert: %w", err)
			}
			c, err := convert(text)
			if err != nil {
				return fmt.Errorf("convert %s: %w", name, err)
			}
			if _, err := io.WriteString(cmd.OutOrStdout(), c.text()); err != nil {
				return fmt.Errorf("write balancers: %w", err)
			}
			_, err = io.WriteString(cmd.ErrOrStderr(), c.report(name))
			return err
		},
	}
}

func input(stdin io.Reader, args []string) (name, text string, err error) {
	if len(args) == 0 || args[0] == "-" {
		data, err := io.ReadAll(stdin)
		return "(standard input)", string(data), err
	}
	data, err := os.ReadFile(args[0])
	return args[0], string(data), err
}

// errNeither is of a text that has nothing to convert, such as the output of "ipvsadm -Ln".
var errNeither = errors.New(`it is neither a configuration of keepalived nor what "ipvsadm -Sn" prints; nothing is written`)

// convert reads either format. Only ipvsadm has lines that begin with a dash.
func convert(text string) (*conversion, error) {
	c := &conversion{fates: fates()}
	read := keepalived{c}.read
	text = strings.TrimPrefix(text, "\ufeff")
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' && line[0] != '!' {
			if line[0] == '-' {
				read = ipvsadm{c}.read
			}
			break
		}
	}
	if read(text); !c.recognized {
		return nil, errNeither
	}
	return c, nil
}
