/* SPDX-License-Identifier: Apache-2.0 */
/* Everything here belongs to one owner. */
#pragma once

#include "tools/ossd_xml.h"

#define OSSD_OWNER "1000000000000001"

static inline void ossd_owner_put(struct buf *xml)
{
	ossd_xml_begin(xml, "Owner");
	ossd_xml_text(xml, "ID", OSSD_OWNER);
	ossd_xml_text(xml, "DisplayName", OSSD_OWNER);
	ossd_xml_end(xml, "Owner");
}

/* A whole AccessControlPolicy document. */
static inline void ossd_acl_document(struct buf *xml, const char *grant)
{
	ossd_xml_document(xml, "AccessControlPolicy");
	ossd_owner_put(xml);
	ossd_xml_begin(xml, "AccessControlList");
	ossd_xml_text(xml, "Grant", grant);
	ossd_xml_end(xml, "AccessControlList");
	ossd_xml_end(xml, "AccessControlPolicy");
}
