/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/lib_cert.h"

#include <arpa/inet.h>
#include <limits.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>

#include "fs/base/check.h"

#define HOUR_S 3600

static void add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX context;
	X509_EXTENSION *extension;

	X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
	check(extension);
	X509_add_ext(cert, extension, -1);
	X509_EXTENSION_free(extension);
}

static X509 *make(EVP_PKEY *key, X509 *issuer, EVP_PKEY *issuer_key, const char *name,
		  long expires_s)
{
	X509 *cert = X509_new();
	X509_NAME *subject;
	char alternative[300];
	struct in_addr ip;

	check(cert);
	X509_set_version(cert, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(cert), issuer ? 2 : 1);
	X509_gmtime_adj(X509_getm_notBefore(cert), -2 * HOUR_S);
	X509_gmtime_adj(X509_getm_notAfter(cert), expires_s);
	X509_set_pubkey(cert, key);
	subject = X509_get_subject_name(cert);
	X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
				   (const unsigned char *)name, -1, -1, 0);
	X509_set_issuer_name(cert, issuer ? X509_get_subject_name(issuer) : subject);
	if (issuer) {
		snprintf(alternative, sizeof(alternative), "%s:%s",
			 inet_pton(AF_INET, name, &ip) == 1 ? "IP" : "DNS", name);
		add_extension(cert, issuer, NID_subject_alt_name, alternative);
	} else {
		add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE");
		add_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign");
	}
	check(X509_sign(cert, issuer_key, EVP_sha256()));
	return cert;
}

static FILE *create(const char *dir, const char *name)
{
	char path[PATH_MAX];
	FILE *f;

	check(snprintf(path, sizeof(path), "%s/%s", dir, name) < PATH_MAX);
	f = fopen(path, "we");
	check(f);
	return f;
}

static void write_cert(const char *dir, const char *name, X509 *cert)
{
	FILE *f = create(dir, name);

	check(PEM_write_X509(f, cert));
	check(fclose(f) == 0);
}

void cert_make(const char *dir, const struct cert_spec *spec)
{
	EVP_PKEY *ca_key = EVP_EC_gen("P-256"), *key = EVP_EC_gen("P-256");
	X509 *ca, *cert;
	FILE *f;

	check(ca_key && key);
	ca = make(ca_key, NULL, ca_key, "test authority", HOUR_S);
	cert = make(key, ca, ca_key, spec->name, spec->expires_s);
	write_cert(dir, "ca.pem", ca);
	write_cert(dir, "cert.pem", cert);
	f = create(dir, "key.pem");
	check(PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL));
	check(fclose(f) == 0);
	X509_free(ca);
	X509_free(cert);
	EVP_PKEY_free(ca_key);
	EVP_PKEY_free(key);
}
