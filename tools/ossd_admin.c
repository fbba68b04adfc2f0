/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_admin.h"

#include <microhttpd.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/err.h"
#include "fs/base/json.h"
#include "fs/base/xalloc.h"
#include "tools/ossd_fault.h"
#include "tools/ossd_http.h"
#include "tools/ossd_request.h"
#include "tools/ossd_stats.h"

#define BODY_MAX (1u << 20)

struct ossd_admin {
	struct MHD_Daemon *daemon;
	const struct ossd_context *context;
	char address[128];
};

struct admin_request {
	struct buf body;
};

static unsigned int refuse(struct buf *out, unsigned int status, const char *text)
{
	buf_reset(out);
	json_begin_object(out, NULL);
	json_put_string(out, "error", text);
	json_end_object(out);
	return status;
}

static unsigned int serve_stats(const struct ossd_context *context, const char *method,
				struct buf *out)
{
	if (!strcmp(method, "DELETE")) {
		ossd_stats_reset(context->stats);
		return 204;
	}
	if (strcmp(method, "GET") != 0)
		return refuse(out, 405, "GET or DELETE");
	ossd_stats_format(context->stats, out);
	return 200;
}

static unsigned int serve_faults(const struct ossd_context *context, const char *method,
				 const struct buf *body, struct buf *out)
{
	struct why why = {""};
	int r = 0;

	if (!strcmp(method, "DELETE"))
		r = ossd_fault_program_set(context->faults, "[]", 2, &why);
	else if (!strcmp(method, "PUT") || !strcmp(method, "POST"))
		r = ossd_fault_program_set(context->faults, body->data ? body->data : "",
					   body->len, &why);
	else if (strcmp(method, "GET") != 0)
		return refuse(out, 405, "GET, PUT or DELETE");
	if (r < 0)
		return refuse(out, 400, why.text);
	ossd_fault_program_format(context->faults, out);
	return 200;
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *connection,
			      const char *url, const char *method, const char *version,
			      const char *data, size_t *n, void **req_cls)
{
	const struct ossd_admin *admin = cls;
	struct admin_request *req = *req_cls;
	struct MHD_Response *response;
	struct buf out = BUF_INIT;
	unsigned int status;
	enum MHD_Result r;

	(void)version;
	if (!req) {
		*req_cls = xcalloc(1, sizeof(*req));
		return MHD_YES;
	}
	if (*n) {
		buf_append(&req->body, data, *n);
		*n = 0;
		return req->body.len > BODY_MAX ? MHD_NO : MHD_YES;
	}
	if (!strcmp(url, "/stats"))
		status = serve_stats(admin->context, method, &out);
	else if (!strcmp(url, "/faults"))
		status = serve_faults(admin->context, method, &req->body, &out);
	else
		status = refuse(&out, 404, "there are /stats and /faults");
	buf_putc(&out, '\n');
	response = MHD_create_response_from_buffer(status == 204 ? 0 : out.len, out.data,
						   MHD_RESPMEM_MUST_COPY);
	buf_fini(&out);
	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, "Content-Type", "application/json");
	r = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return r;
}

static void completed(void *cls, struct MHD_Connection *connection, void **req_cls,
		      enum MHD_RequestTerminationCode how)
{
	struct admin_request *req = *req_cls;

	(void)cls;
	(void)connection;
	(void)how;
	if (req)
		buf_fini(&req->body);
	free(req);
	*req_cls = NULL;
}

int ossd_admin_start(struct ossd_admin **out, const char *address,
		     const struct ossd_context *context, struct why *why)
{
	struct ossd_admin *admin = xcalloc(1, sizeof(*admin));
	int fd = ossd_listen(address, admin->address, sizeof(admin->address), why);

	if (fd < 0) {
		free(admin);
		return err_trace(fd);
	}
	admin->context = context;
	admin->daemon = MHD_start_daemon(
		MHD_USE_POLL | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, handle,
		admin, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED,
		completed, NULL, MHD_OPTION_CONNECTION_TIMEOUT, 60u, MHD_OPTION_END);
	if (!admin->daemon) {
		close(fd);
		free(admin);
		return why_set(why, err_origin(-EIO), "%s: the listener does not start",
			       address);
	}
	*out = admin;
	return 0;
}

struct ossd_admin *ossd_admin_stop(struct ossd_admin *admin)
{
	if (!admin)
		return NULL;
	MHD_stop_daemon(admin->daemon);
	free(admin);
	return NULL;
}

const char *ossd_admin_address(const struct ossd_admin *admin)
{
	return admin->address;
}
