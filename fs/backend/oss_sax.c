/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/oss_sax.h"

#include <errno.h>
#include <libxml/parser.h>
#include <libxml/parserInternals.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

void oss_sax_refuse(struct oss_sax *p, int r, const char *complaint)
{
	if (p->result < 0)
		return;
	p->result = err_origin(r);
	p->complaint = complaint;
	xmlStopParser(p->context);
}

/* ---- what libxml2 reports ------------------------------------------------------------ */

static void keep_name(char out[64], const xmlChar *name)
{
	const char *s = (const char *)name;
	size_t n = strlen(s);

	/* No name that matters is that long: an unknown element. */
	if (n >= 64)
		n = 0;
	memcpy(out, s, n);
	out[n] = '\0';
}

struct oss_item *oss_sax_push(struct oss_sax *p)
{
	struct oss_page *page = &p->page;

	if (page->count == OSS_XML_ITEMS_MAX) {
		oss_sax_refuse(p, -EBADMSG, "too many entries");
		return NULL;
	}
	if (page->count == p->items_size) {
		size_t size = p->items_size ? p->items_size * 2 : 64;
		struct oss_item *grown =
			reallocarray(page->items, size, sizeof(*page->items));

		if (!grown) {
			oss_sax_refuse(p, -ENOMEM, "no memory");
			return NULL;
		}
		page->items = grown;
		p->items_size = size;
	}
	page->items[page->count] = (struct oss_item){0};
	return &page->items[page->count++];
}

static bool is_root(const struct oss_sax_document *document, const xmlChar *name)
{
	for (const char *const *root = document->roots; *root; root++)
		if (strcmp((const char *)name, *root) == 0)
			return true;
	return false;
}

static void on_start(void *arg, const xmlChar *name, const xmlChar *prefix,
		     const xmlChar *uri, int namespace_count, const xmlChar **namespaces,
		     int attribute_count, int defaulted, const xmlChar **attributes)
{
	struct oss_sax *p = arg;

	(void)prefix, (void)uri, (void)namespace_count, (void)namespaces;
	(void)attribute_count, (void)defaulted, (void)attributes;
	p->depth++;
	buf_reset(&p->text);
	p->name[0] = '\0';
	if (p->depth > OSS_XML_DEPTH_MAX) {
		oss_sax_refuse(p, -EBADMSG, "elements are nested too deep");
	} else if (p->depth == 1) {
		if (!is_root(p->document, name))
			oss_sax_refuse(p, -EBADMSG, "it is another document");
	} else if (p->depth == 2) {
		keep_name(p->parent, name);
		if (p->document->item && strcmp(p->parent, p->document->item) == 0)
			oss_sax_push(p);
	} else if (p->depth == 3) {
		keep_name(p->name, name);
	}
}

static void on_end(void *arg, const xmlChar *name, const xmlChar *prefix,
		   const xmlChar *uri)
{
	struct oss_sax *p = arg;
	const char *parent = p->depth == 3 ? p->parent : NULL;
	const char *own = p->depth == 3 ? p->name : p->parent;

	(void)name, (void)prefix, (void)uri;
	if ((p->depth == 2 || (p->depth == 3 && *own)) && p->result == 0) {
		for (const struct oss_sax_rule *rule = p->document->rules; rule->take;
		     rule++) {
			if (strcmp(own, rule->name) || !parent != !rule->parent ||
			    (parent && strcmp(parent, rule->parent)))
				continue;
			rule->take(p, p->text.data ? p->text.data : "", p->text.len);
			break;
		}
	}
	p->depth--;
	p->name[0] = '\0';
	buf_reset(&p->text);
}

static void on_text(void *arg, const xmlChar *text, int n)
{
	struct oss_sax *p = arg;

	if (p->text.len + (size_t)n > OSS_XML_TEXT_MAX) {
		oss_sax_refuse(p, -EBADMSG, "an element is too long");
		return;
	}
	buf_append(&p->text, text, (size_t)n);
}

static void on_doctype(void *arg, const xmlChar *name, const xmlChar *external,
		       const xmlChar *system)
{
	(void)name, (void)external, (void)system;
	oss_sax_refuse(arg, -EBADMSG, "a DOCTYPE is not accepted");
}

static void on_complaint(void *arg, xmlErrorPtr error)
{
	(void)arg, (void)error; /* wellFormed says it; nothing goes to stderr */
}

static void init_library(void)
{
	xmlInitParser();
}

int oss_sax_run(struct oss_sax *p, const char *xml, size_t n)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static const xmlSAXHandler handlers = {
		.initialized = XML_SAX2_MAGIC,
		.internalSubset = on_doctype,
		.startElementNs = on_start,
		.endElementNs = on_end,
		.characters = on_text,
		.ignorableWhitespace = on_text,
		.cdataBlock = on_text,
		.serror = on_complaint,
	};

	if (n > OSS_XML_SIZE_MAX) {
		p->complaint = "it is too large";
		return err_origin(-EBADMSG);
	}
	pthread_once(&once, init_library);
	p->context = xmlCreateMemoryParserCtxt(xml, (int)n);
	if (!p->context) { /* also for an empty document */
		p->complaint = "it is empty";
		return err_origin(-EBADMSG);
	}
	*p->context->sax = handlers;
	p->context->userData = p;
	xmlCtxtUseOptions(p->context, XML_PARSE_NONET);
	/* The options put handlers of their own over some of ours. */
	*p->context->sax = handlers;
	xmlParseDocument(p->context);
	if (p->result == 0 && !p->context->wellFormed)
		oss_sax_refuse(p, -EBADMSG, "it is not well-formed");
	if (p->result == 0 && (p->text.failed || p->page.text.failed))
		p->result = err_origin(-ENOMEM);
	xmlFreeParserCtxt(p->context);
	buf_fini(&p->text);
	return p->result;
}
