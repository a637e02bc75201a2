package convert

import "strings"

// place is where a word stands: in which block of keepalived ("file": in none), or in which command of ipvsadm.
type place struct{ block, word string }

// fates returns what is named on standard error of the words that there are; "": the code that reads the word decides. README.md
// says for each whether it is converted, named or refused.
func fates() map[place]string {
	const (
		checkers = " TCP_CHECK HTTP_GET SSL_GET DNS_CHECK SMTP_CHECK"
		lost     = "Verdict has no counterpart"
		scripts  = "Verdict runs no scripts and sends no mail"
	)
	all := map[place]string{}
	for _, row := range [][3]string{
		{"file", "$NAME= virtual_server virtual_server_group", ""},
		{"file", "vrrp_instance global_defs vrrp_sync_group vrrp_script vrrp_track_process vrrp_track_file track_file track_bfd track_group " +
			"static_track_group static_ipaddress static_routes static_rules garp_group bfd_instance SSL interface_up_down_delays " +
			"linkbeat_interfaces linkbeat_use_polling net_namespace net_namespace_ipvs namespace_with_ipsets use_pid_dir instance " +
			"child_wait_time", "it is no virtual server; it is left out"},
		{"file virtual_server real_server url" + checkers, "include includea includeb includem includer includew", "convert reads one " +
			"file; convert that one, too"},
		{"virtual_server_group", "ADDRESS", ""},
		{"virtual_server_group", "fwmark", noMarks},
		{"virtual_server", "lb_algo lvs_sched lb_kind lvs_method protocol persistence_timeout persistence_granularity sh-port sh-fallback " +
			"mh-port mh-fallback flag-1 flag-2 weight real_server sorry_server sorry_server_lvs_method", ""},
		{"virtual_server", "flag-3 ops hashed persistence_engine ha_suspend omega quorum hysteresis ip_family sorry_server_inhibit", lost},
		{"virtual_server real_server" + checkers, "delay_loop connect_timeout retry", ""},
		{"virtual_server real_server" + checkers, "delay_before_retry", "Verdict asks again after the interval of the check"},
		{"virtual_server real_server" + checkers, "alpha warmup inhibit_on_failure snmp_name uthreshold lthreshold", lost},
		{"virtual_server real_server", "smtp_alert quorum_up quorum_down notify_up notify_down", scripts},
		{"virtual_server real_server HTTP_GET SSL_GET url", "virtualhost", ""},
		{"real_server", "weight lvs_method" + checkers, ""},
		{"real_server", "UDP_CHECK MISC_CHECK PING_CHECK BFD_CHECK FILE_CHECK", "Verdict has no such check; it is left out"},
		{checkers, "connect_port connect_ip", ""},
		{checkers, "bindto bind_port bind_if fwmark log_all_failures", lost},
		{"HTTP_GET SSL_GET", "url nb_get_retry", ""},
		{"HTTP_GET SSL_GET", "http_protocol sni_name fast_recovery", lost},
		{"HTTP_GET SSL_GET", "enable_sni", "Verdict always sends the name of the server"},
		{"DNS_CHECK", "name type", ""},
		{"SMTP_CHECK", "helo_name host", lost},
		{"url", "path status_code", ""},
		{"HTTP_GET SSL_GET url", "digest regex regex_no_match regex_options regex_stack regex_min_offset regex_max_offset tls_compliant", lost},
		{"-A", "-A -t -u --sctp-service -s -b -p", ""},
		{"-A", "-f", noMarks},
		{"-A", "-o -M --pe", lost},
		{"-a", "-a -t -u --sctp-service -r -g -i -m -w --tun-type --tun-port --tun-nocsum --tun-csum --tun-remcsum", ""},
		{"-a", "-x -y", lost},
	} {
		for block := range strings.FieldsSeq(row[0]) {
			for word := range strings.FieldsSeq(row[1]) {
				all[place{block, word}] = row[2]
			}
		}
	}
	return all
}
