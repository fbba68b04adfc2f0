# Sluice. `make` builds the programs into build/; `make help` lists the rest.
#
# One non-recursive file: an object list per program, one source a line, sorted.

.DEFAULT_GOAL := all
.SECONDARY:
BUILD := build
SAN ?=
CC ?= gcc
WERROR ?= $(if $(CI),-Werror)
VERSION := 0.1.0

# SAN=address,undefined or SAN=thread: a build of its own beside the plain one.
ifneq ($(SAN),)
comma := ,
BUILD := build/san-$(subst $(comma),-,$(SAN))
san_flags := -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all
endif

# libfuse: the private prefix that scripts/setup builds where the system's is older than
# 3.18 with io_uring (scripts/README.md, "the ladder"); else the system's own.
FUSE_PREFIX ?= $(CURDIR)/.deps/fuse3
ifneq ($(wildcard $(FUSE_PREFIX)/lib/libfuse3.a),)
fuse_cflags := -I$(FUSE_PREFIX)/include/fuse3
fuse_libs := $(FUSE_PREFIX)/lib/libfuse3.a -luring -lnuma -ldl -lgcc_s
else
fuse_cflags := $(shell pkg-config --cflags fuse3 2>/dev/null)
fuse_libs := $(shell pkg-config --libs fuse3 2>/dev/null || echo -lfuse3)
endif

pkg = $(shell pkg-config $(1) $(2) 2>/dev/null)
libs_base := -lisal -lpthread -lm
libs_cache := $(call pkg,--libs,jansson) -llmdb
libs_backend := $(call pkg,--libs,libcurl libcrypto libxml-2.0 jansson)
libs_runner := $(call pkg,--libs,yaml-0.1 jansson libgit2)
libs_ossd := $(call pkg,--libs,libmicrohttpd libcrypto libxml-2.0 jansson) -llmdb

warnings := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wpointer-arith -Wcast-qual -Wwrite-strings -Wvla -Wformat=2
CFLAGS ?= -O2 -g
all_cflags := -std=gnu11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DVERSION='"$(VERSION)"' \
	-I. $(fuse_cflags) $(call pkg,--cflags,libxml-2.0) $(warnings) $(WERROR) -fPIC \
	-fvisibility=hidden -fstack-protector-strong $(san_flags) $(CFLAGS)
all_ldflags := -Wl,-z,relro,-z,now $(san_flags) $(LDFLAGS)

# ---- object lists ---------------------------------------------------------------------

base_src := \
	fs/base/arena.c \
	fs/base/buf.c \
	fs/base/check.c \
	fs/base/clock.c \
	fs/base/crc.c \
	fs/base/err.c \
	fs/base/io.c \
	fs/base/json.c \
	fs/base/lock.c \
	fs/base/log.c \
	fs/base/opt.c \
	fs/base/opt_completion.c \
	fs/base/path.c \
	fs/base/slots.c \
	fs/base/standard.c \
	fs/base/suggest.c \
	fs/base/units.c \
	fs/base/utf8.c \
	fs/base/worker.c \
	fs/base/xalloc.c

cache_src := \
	cache/ahead.c \
	cache/block.c \
	cache/budget.c \
	cache/cache.c \
	cache/datafile.c \
	cache/disk.c \
	cache/entries.c \
	cache/evict.c \
	cache/fetch.c \
	cache/fill.c \
	cache/guard.c \
	cache/follow.c \
	cache/ident.c \
	cache/index.c \
	cache/journal.c \
	cache/kill_point.c \
	cache/ledger.c \
	cache/lister.c \
	cache/listing.c \
	cache/listing_build.c \
	cache/listing_disk.c \
	cache/meta.c \
	cache/news.c \
	cache/object.c \
	cache/object_ask.c \
	cache/origin.c \
	cache/origin_posix.c \
	cache/pack.c \
	cache/patch.c \
	cache/patch_table.c \
	cache/prefetch.c \
	cache/probe.c \
	cache/proof.c \
	cache/ranges.c \
	cache/read.c \
	cache/read_small.c \
	cache/readahead.c \
	cache/record.c \
	cache/replay.c \
	cache/segment.c \
	cache/shelf.c \
	cache/split.c \
	cache/stage.c \
	cache/stage_copy.c \
	cache/store.c \
	cache/sums.c \
	cache/tail.c \
	cache/upload_plan.c \
	cache/upload_schedule.c \
	cache/upload_request.c \
	cache/upload_step.c \
	cache/uploader.c \
	cache/verify.c \
	cache/wait.c \
	cache/whole.c

backend_src := \
	fs/backend/backend.c \
	fs/backend/creds.c \
	fs/backend/creds_file.c \
	fs/backend/creds_http.c \
	fs/backend/creds_json.c \
	fs/backend/creds_source.c \
	fs/backend/endpoint.c \
	fs/backend/fault.c \
	fs/backend/file.c \
	fs/backend/file_attr.c \
	fs/backend/file_copy.c \
	fs/backend/file_data.c \
	fs/backend/file_get.c \
	fs/backend/file_list.c \
	fs/backend/file_multi.c \
	fs/backend/file_path.c \
	fs/backend/file_put.c \
	fs/backend/file_record.c \
	fs/backend/file_snapshot.c \
	fs/backend/http.c \
	fs/backend/http_slot.c \
	fs/backend/mem.c \
	fs/backend/mem_multi.c \
	fs/backend/mem_store.c \
	fs/backend/oss.c \
	fs/backend/oss_build.c \
	fs/backend/oss_confirm.c \
	fs/backend/oss_delete.c \
	fs/backend/oss_error.c \
	fs/backend/oss_list.c \
	fs/backend/oss_multi.c \
	fs/backend/oss_object.c \
	fs/backend/oss_op.c \
	fs/backend/oss_reply.c \
	fs/backend/oss_sax.c \
	fs/backend/oss_sign.c \
	fs/backend/oss_signer.c \
	fs/backend/oss_text.c \
	fs/backend/oss_xml.c \
	fs/backend/read_only.c \
	fs/backend/retry.c \
	fs/backend/retry_args.c \
	fs/backend/retry_step.c \
	fs/backend/trace.c

fs_src := \
	fs/config.c \
	fs/handover.c \
	fs/handover_file.c \
	fs/handover_node.c \
	fs/heap.c \
	fs/inode.c \
	fs/name_set.c \
	fs/input.c \
	fs/input_dir.c \
	fs/order.c \
	fs/order_log.c \
	fs/output.c \
	fs/output_content.c \
	fs/output_detour.c \
	fs/output_dir.c \
	fs/output_fetch.c \
	fs/output_file.c \
	fs/output_flush.c \
	fs/output_forget.c \
	fs/output_handover.c \
	fs/output_list.c \
	fs/output_log.c \
	fs/output_look.c \
	fs/output_name.c \
	fs/output_node.c \
	fs/output_patch.c \
	fs/output_plan.c \
	fs/output_rename.c \
	fs/output_receipt.c \
	fs/output_result.c \
	fs/output_room.c \
	fs/output_source.c \
	fs/output_status.c \
	fs/output_store.c \
	fs/output_sync.c \
	fs/output_task.c \
	fs/output_time.c \
	fs/output_walk.c \
	fs/output_watch.c \
	fs/output_ahead.c \
	fs/receipt.c \
	fs/receive.c \
	fs/sluice.c \
	fs/stack.c \
	fs/warm.c \
	fs/warm_fetch.c

mount_src := \
	fs/backing.c \
	fs/client.c \
	fs/cmd_check.c \
	fs/cmd_flush.c \
	fs/cmd_metrics.c \
	fs/cmd_mount.c \
	fs/cmd_recover.c \
	fs/cmd_status.c \
	fs/cmd_umount.c \
	fs/cmd_warm.c \
	fs/control.c \
	fs/control_send.c \
	fs/daemon.c \
	fs/fusermount.c \
	fs/holder.c \
	fs/loop.c \
	fs/metrics.c \
	fs/mounts.c \
	fs/ops.c \
	fs/ops_handle.c \
	fs/ops_input.c \
	fs/ops_output.c \
	fs/ops_output_file.c \
	fs/ops_spare.c \
	fs/ops_reply.c \
	fs/ops_restore.c \
	fs/progress.c \
	fs/serve.c \
	fs/session.c \
	fs/standin.c \
	fs/survey.c

sluice_src := \
	fs/main.c

runner_lib_src := \
	runner/cmd.c \
	runner/cmd_check.c \
	runner/cmd_list.c \
	runner/cmd_logs.c \
	runner/cmd_plan.c \
	runner/cmd_start.c \
	runner/cmd_status.c \
	runner/cmd_stop.c \
	runner/code.c \
	runner/code_dir.c \
	runner/code_git.c \
	runner/code_git_child.c \
	runner/code_tree.c \
	runner/engine.c \
	runner/engine_fake.c \
	runner/engine_runc.c \
	runner/env.c \
	runner/env_files.c \
	runner/env_frameworks.c \
	runner/gateway.c \
	runner/host.c \
	runner/init_image.c \
	runner/job.c \
	runner/logs.c \
	runner/logs_term.c \
	runner/mistakes.c \
	runner/mnt.c \
	runner/netlink.c \
	runner/node.c \
	runner/ns.c \
	runner/plan.c \
	runner/plan_print.c \
	runner/preflight.c \
	runner/proc.c \
	runner/roles.c \
	runner/run.c \
	runner/run_events.c \
	runner/runc.c \
	runner/runc_bundle.c \
	runner/runc_cgroup.c \
	runner/runc_container.c \
	runner/runc_create.c \
	runner/runc_keeper.c \
	runner/runc_layer.c \
	runner/runc_net.c \
	runner/runc_rootfs.c \
	runner/secret.c \
	runner/signals.c \
	runner/spec.c \
	runner/spec_check.c \
	runner/spec_fields.c \
	runner/spec_lists.c \
	runner/spec_values.c \
	runner/status.c \
	runner/step.c \
	runner/step_code.c \
	runner/step_mount.c \
	runner/supervise.c \
	runner/view.c \
	runner/watch.c

runner_src := \
	runner/main.c

ossd_lib_src := \
	tools/ossd_admin.c \
	tools/ossd_append.c \
	tools/ossd_attr.c \
	tools/ossd_auth.c \
	tools/ossd_body.c \
	tools/ossd_code.c \
	tools/ossd_dispatch.c \
	tools/ossd_fault.c \
	tools/ossd_file.c \
	tools/ossd_http.c \
	tools/ossd_index.c \
	tools/ossd_index_upload.c \
	tools/ossd_key.c \
	tools/ossd_keyfile.c \
	tools/ossd_list.c \
	tools/ossd_mime.c \
	tools/ossd_object.c \
	tools/ossd_op.c \
	tools/ossd_ops_attr.c \
	tools/ossd_ops_bucket.c \
	tools/ossd_ops_get.c \
	tools/ossd_ops_list.c \
	tools/ossd_ops_object.c \
	tools/ossd_ops_upload.c \
	tools/ossd_ops_uploads.c \
	tools/ossd_range.c \
	tools/ossd_request.c \
	tools/ossd_s3.c \
	tools/ossd_s3_auth.c \
	tools/ossd_s3_reply.c \
	tools/ossd_s3_sign.c \
	tools/ossd_scan.c \
	tools/ossd_send.c \
	tools/ossd_stats.c \
	tools/ossd_store.c \
	tools/ossd_target.c \
	tools/ossd_time.c \
	tools/ossd_upload.c \
	tools/ossd_xml.c

ossd_src := \
	tools/ossd.c

ossctl_src := \
	tools/ossctl.c \
	tools/ossctl_copy.c

# ---- rules ----------------------------------------------------------------------------

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
archives := base cache backend fs mount runner_lib ossd_lib
archive = $(BUILD)/lib$(1).a
tests_src := $(sort $(wildcard tests/unit/test_*.c))
tests_bin := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(tests_src))
tests_lib_src := $(sort $(wildcard tests/unit/lib_*.c))
fuzz_src := $(sort $(wildcard tests/fuzz/fuzz_*.c))
tests_bin += $(patsubst tests/fuzz/%.c,$(BUILD)/tests/%,$(fuzz_src))
programs := $(if $(sluice_src),$(BUILD)/sluice) $(if $(runner_src),$(BUILD)/runner) \
	$(if $(ossd_src),$(BUILD)/ossd) $(if $(ossctl_src),$(BUILD)/ossctl)

.PHONY: all
all: $(programs) $(if $(fs_src),libsluice)

$(BUILD)/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(all_cflags) -MMD -MP -c -o $@ $<

# Process 1 of the runner's containers: no libc, so that it runs in any image; its bytes
# become part of the runner.
init := $(BUILD)/obj/runner/init
$(init): runner/init.c Makefile
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(warnings) $(WERROR) -Os -ffreestanding -fno-stack-protector -fno-pie \
		-fno-asynchronous-unwind-tables -static -nostdlib -no-pie \
		-Wl,--build-id=none -Wl,-z,noexecstack -s -o $@ $<
$(BUILD)/obj/runner/init_image.o: $(init)
$(BUILD)/obj/runner/init_image.o: all_cflags += -DINIT_IMAGE='"$(init)"'

define archive_rule
$(call archive,$(1)): $(call obj,$($(1)_src))
	@mkdir -p $$(@D)
	@rm -f $$@
	ar rcs $$@ $$^
endef
$(foreach a,$(archives),$(eval $(call archive_rule,$(a))))

$(BUILD)/sluice: $(call obj,$(sluice_src)) $(foreach a,mount fs backend cache base,$(call archive,$(a)))
	$(CC) $(all_ldflags) -o $@ $^ $(fuse_libs) $(libs_backend) $(libs_cache) $(libs_base)

$(BUILD)/runner: $(call obj,$(runner_src)) $(foreach a,runner_lib base,$(call archive,$(a)))
	$(CC) $(all_ldflags) -o $@ $^ $(libs_runner) $(libs_base)

$(BUILD)/ossctl: $(call obj,$(ossctl_src)) $(foreach a,backend cache base,$(call archive,$(a)))
	$(CC) $(all_ldflags) -o $@ $^ $(libs_backend) $(libs_cache) $(libs_base)

$(BUILD)/ossd: $(call obj,$(ossd_src)) $(foreach a,ossd_lib backend cache base,$(call archive,$(a)))
	$(CC) $(all_ldflags) -o $@ $^ $(libs_ossd) $(libs_backend) $(libs_cache) $(libs_base)

all_archives = $(foreach a,$(archives),$(call archive,$(a)))
all_libs = $(fuse_libs) $(libs_ossd) $(libs_runner) $(libs_backend) $(libs_cache) $(libs_base)

# What only one test is linked with, because it takes the place of library functions.
with_test_output_power := tests/unit/power.c
$(BUILD)/tests/test_output_power: $(call obj,$(with_test_output_power))

$(BUILD)/tests/%: $(BUILD)/obj/tests/unit/%.o $(call obj,$(tests_lib_src)) $(all_archives)
	@mkdir -p $(@D)
	$(CC) $(all_ldflags) -o $@ $< $(call obj,$(tests_lib_src) $(with_$*)) -Wl,--start-group \
		$(all_archives) -Wl,--end-group -lcmocka -lssl $(all_libs)

$(BUILD)/tests/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(BUILD)/obj/tests/fuzz/replay.o \
		$(all_archives)
	@mkdir -p $(@D)
	$(CC) $(all_ldflags) -o $@ $< $(BUILD)/obj/tests/fuzz/replay.o -Wl,--start-group \
		$(all_archives) -Wl,--end-group $(all_libs)

# `make fuzz T=sign SECONDS=60`: libFuzzer on one target; what it finds goes to build/fuzz/.
.PHONY: fuzz
SECONDS ?= 60
fuzz:
	$(if $(T),,$(error make fuzz T=target, one of: $(patsubst tests/fuzz/fuzz_%.c,%,$(fuzz_src))))
	@mkdir -p build/fuzz/$(T)
	$(MAKE) -s CC=clang BUILD=build/fuzz-obj SAN=fuzzer-no-link,address,undefined \
		$(patsubst %,build/fuzz-obj/lib%.a,$(archives)) \
		build/fuzz-obj/obj/tests/fuzz/fuzz_$(T).o
	clang -fsanitize=fuzzer,address,undefined -o build/fuzz/fuzz_$(T) \
		build/fuzz-obj/obj/tests/fuzz/fuzz_$(T).o \
		-Wl,--start-group build/fuzz-obj/lib*.a \
		-Wl,--end-group $(all_libs)
	build/fuzz/fuzz_$(T) -max_total_time=$(SECONDS) -artifact_prefix=build/fuzz/ \
		build/fuzz/$(T) tests/fuzz/corpus/$(T)

.PHONY: libsluice
libsluice: $(BUILD)/libsluice.a $(BUILD)/libsluice.so

libsluice_obj = $(call obj,$(fs_src) $(backend_src) $(cache_src) $(base_src))
$(BUILD)/libsluice.a: $(libsluice_obj)
	@rm -f $@
	ar rcs $@ $^
$(BUILD)/libsluice.so: $(libsluice_obj) fs/sluice.map
	$(CC) -shared -Wl,-soname,libsluice.so.0 -Wl,--version-script=fs/sluice.map $(all_ldflags) \
		-o $@ $(libsluice_obj) $(libs_backend) $(libs_cache) $(libs_base)

# ---- checks ---------------------------------------------------------------------------

# `make check` runs every test; T=journal one group, T=journal/seal the cases that match.
.PHONY: check unit tests-bin
tests-bin: $(tests_bin)
check: all tests-bin
	BUILD=$(BUILD) tests/run $(T)
unit: all tests-bin
	BUILD=$(BUILD) tests/run unit/$(T)

# The programs of scripts/bench.
bench_bin := $(patsubst tests/bench/%.c,$(BUILD)/bench/%,$(wildcard tests/bench/*.c))
.PHONY: bench-bin
bench-bin: $(bench_bin)
$(BUILD)/bench/%: $(BUILD)/obj/tests/bench/%.o
	@mkdir -p $(@D)
	$(CC) $(all_ldflags) -o $@ $< $(libs_backend) -lpthread

.PHONY: lint
lint:
	scripts/lint

# ---- installing -----------------------------------------------------------------------

PREFIX ?= /usr/local
DESTDIR ?=
# Where mount(8) looks for helpers, whatever the prefix.
HELPERDIR ?= /sbin
dest := $(DESTDIR)$(PREFIX)

.PHONY: install
install: all
	install -d $(dest)/bin $(DESTDIR)$(HELPERDIR) $(dest)/lib/pkgconfig $(dest)/include \
		$(dest)/share/man/man1 $(dest)/share/man/man8 \
		$(dest)/share/bash-completion/completions \
		$(dest)/share/zsh/site-functions $(dest)/share/fish/vendor_completions.d
	install -m 755 $(programs) $(dest)/bin
	ln -sf $(PREFIX)/bin/sluice $(DESTDIR)$(HELPERDIR)/mount.sluice
	install -m 755 $(BUILD)/libsluice.so $(dest)/lib/libsluice.so.0
	ln -sf libsluice.so.0 $(dest)/lib/libsluice.so
	install -m 644 $(BUILD)/libsluice.a $(dest)/lib
	install -m 644 fs/sluice.h $(dest)/include
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' fs/sluice.pc.in \
		> $(dest)/lib/pkgconfig/sluice.pc
	install -m 644 fs/sluice.8 $(dest)/share/man/man8
	install -m 644 runner/runner.1 tools/ossd.1 $(dest)/share/man/man1
	for program in $(notdir $(programs)); do \
		$(BUILD)/$$program completion bash \
			> $(dest)/share/bash-completion/completions/$$program && \
		$(BUILD)/$$program completion zsh \
			> $(dest)/share/zsh/site-functions/_$$program && \
		$(BUILD)/$$program completion fish \
			> $(dest)/share/fish/vendor_completions.d/$$program.fish || exit 1; \
	done

.PHONY: clean
clean:
	rm -rf build

.PHONY: help
help:
	@echo 'make                     programs and libraries into build/'
	@echo 'make check [T=name[/case]] [SAN=address,undefined|thread]'
	@echo 'make lint                format, layers, sizes, headers, cppcheck, clang-tidy'
	@echo 'make install [PREFIX= DESTDIR=]'

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

.PHONY: print-fuse-cflags
print-fuse-cflags:
	@echo '$(fuse_cflags)'
