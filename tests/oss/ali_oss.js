// SPDX-License-Identifier: Apache-2.0
// The official OSS client for Node against a running ossd. ali_oss.sh starts the server and
// calls this once per signature version and addressing style:
//
//   node ali_oss.js ENDPOINT v1|v4 path|virtual
'use strict';
const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const { Readable } = require('node:stream');
const OSS = require('ali-oss');

const [endpoint, version, style] = process.argv.slice(2);
const bucket = `ali-${version}-${style}`;
const url = new URL(endpoint);
// BUCKET.localhost need not resolve everywhere: every name leads to the server.
const agent = new http.Agent({
	keepAlive: true,
	lookup: (name, options, done) =>
		options.all ? done(null, [{ address: url.hostname, family: 4 }]) : done(null, url.hostname, 4),
});
const options = {
	endpoint: style === 'virtual' ? `http://localhost:${url.port}` : endpoint,
	region: 'oss-cn-hangzhou',
	accessKeyId: process.env.OSS_ACCESS_KEY_ID,
	accessKeySecret: process.env.OSS_ACCESS_KEY_SECRET,
	authorizationV4: version === 'v4',
	sldEnable: style === 'path',
	bucket,
	agent,
	retryMax: 0,
	timeout: 20000,
};
const client = new OSS(options);
const data = n => crypto.createHash('shake256', { outputLength: n }).update(`${bucket}${n}`).digest();
const md5 = b => crypto.createHash('md5').update(b).digest('hex').toUpperCase();

const objectUrl = key => (style === 'virtual' ? `http://${bucket}.localhost:${url.port}/` : `${endpoint}/${bucket}/`) + key;

// The request must fail with this status and code.
async function refused(promise, status, code) {
	await assert.rejects(promise, error => {
		assert.equal(error.status, status, `${error.name}: ${error.message}`);
		if (code) assert.equal(error.code, code);
		return true;
	});
}

const cases = {
	async buckets() {
		await refused(client.getBucketInfo(bucket), 404, 'NoSuchBucket');
		await client.putBucket(bucket);
		await client.putBucket(bucket); // once more is no error
		const { buckets } = await client.listBuckets({ prefix: bucket });
		assert.deepEqual(buckets.map(b => b.name), [bucket]);
		const info = await client.getBucketInfo(bucket);
		assert.equal(info.bucket.Name, bucket);
		assert.equal((await client.getBucketLocation(bucket)).location, 'oss-cn-hangzhou');
		assert.equal((await client.getBucketACL(bucket)).acl, 'private');
		await client.putBucketACL(bucket, 'public-read');
		assert.equal((await client.getBucketACL(bucket)).acl, 'public-read');
		await client.putBucketACL(bucket, 'private');
		const stat = await client.getBucketStat(bucket);
		assert.equal(stat.stat.ObjectCount, '0');
	},

	async putGetHead() {
		const body = data(70000);
		const put = await client.put('dir/a file+ü.bin', body, {
			mime: 'text/x-test',
			headers: { 'Cache-Control': 'no-cache', 'Content-Disposition': 'inline' },
			meta: { uid: 1, pid: 'two' },
		});
		assert.equal(put.res.status, 200);
		assert.equal(put.res.headers.etag, `"${md5(body)}"`);
		const got = await client.get('dir/a file+ü.bin');
		assert.ok(body.equals(got.content));
		assert.equal(got.res.headers['content-type'], 'text/x-test');
		assert.equal(got.res.headers['cache-control'], 'no-cache');
		const head = await client.head('dir/a file+ü.bin');
		assert.deepEqual(head.meta, { uid: '1', pid: 'two' });
		assert.equal(head.res.headers['content-length'], '70000');
		assert.equal(head.res.headers['x-oss-object-type'], 'Normal');
		assert.match(head.res.headers['x-oss-hash-crc64ecma'], /^\d+$/);
		assert.match(head.res.headers['x-oss-request-id'], /^[0-9A-F]{24}$/);
		const meta = await client.getObjectMeta('dir/a file+ü.bin');
		assert.equal(meta.res.headers['content-length'], '70000');
		await client.put('empty', Buffer.alloc(0));
		assert.equal((await client.get('empty')).content.length, 0);
		assert.equal((await client.head('plain.json').catch(e => e)).status, 404);
		await client.put('plain.json', Buffer.from('{}'));
		assert.equal((await client.head('plain.json')).res.headers['content-type'], 'application/json');
	},

	async conditions() {
		const etag = (await client.put('cond', Buffer.from('x'))).res.headers.etag;
		await client.get('cond', { headers: { 'If-Match': etag } });
		await refused(client.get('cond', { headers: { 'If-Match': '"0"' } }), 412, 'PreconditionFailed');
		const same = await client.head('cond', { headers: { 'If-None-Match': etag } });
		assert.equal(same.status, 304);
		const later = new Date(Date.now() + 60000).toUTCString();
		assert.equal((await client.head('cond', { headers: { 'If-Modified-Since': later } })).status, 304);
		await refused(client.head('cond', { headers: { 'If-Unmodified-Since': new Date(0).toUTCString() } }), 412);
		await refused(
			client.put('cond', Buffer.from('y'), { headers: { 'x-oss-forbid-overwrite': 'true' } }),
			409, 'FileAlreadyExists');
		assert.equal(String((await client.get('cond')).content), 'x');
	},

	async ranges() {
		const body = data(1000);
		await client.put('range', body);
		const get = (range, standard) => client.get('range', {
			headers: { Range: range, ...(standard ? { 'x-oss-range-behavior': 'standard' } : {}) },
		});
		let got = await get('bytes=10-19');
		assert.equal(got.res.status, 206);
		assert.equal(got.res.headers['content-range'], 'bytes 10-19/1000');
		assert.ok(body.subarray(10, 20).equals(got.content));
		got = await get('bytes=-5');
		assert.ok(body.subarray(995).equals(got.content));
		got = await get('bytes=500-2000');
		assert.equal(got.res.status, 200);
		assert.equal(got.content.length, 1000);
		got = await get('bytes=500-2000', true);
		assert.equal(got.res.status, 206);
		assert.ok(body.subarray(500).equals(got.content));
		await refused(get('bytes=1000-', true), 416, 'InvalidRange');
	},

	async streams() {
		const body = data(3 << 20);
		const file = path.join(os.tmpdir(), `ali-oss-${process.pid}`);
		await client.putStream('stream', Readable.from([body.subarray(0, 1 << 20), body.subarray(1 << 20)]));
		await client.get('stream', file); // Transfer-Encoding: chunked above
		assert.ok(body.equals(fs.readFileSync(file)));
		await client.putStream('stream2', fs.createReadStream(file), { contentLength: body.length });
		const { stream } = await client.getStream('stream2');
		const chunks = [];
		for await (const chunk of stream) chunks.push(chunk);
		assert.ok(body.equals(Buffer.concat(chunks)));
		fs.unlinkSync(file);
	},

	async listings() {
		const keys = ['list/a', 'list/b c', 'list/d/1', 'list/d/2', 'list/e+f', 'list/g&<', 'list/ü/x'];
		for (const key of keys) await client.put(key, Buffer.from(key));
		let all = [], marker;
		do {
			const page = await client.list({ prefix: 'list/', 'max-keys': 2, ...(marker ? { marker } : {}) });
			all.push(...page.objects.map(o => o.name));
			assert.ok(page.objects.length <= 2);
			marker = page.nextMarker;
		} while (marker);
		assert.deepEqual(all, keys);
		const tree = await client.list({ prefix: 'list/', delimiter: '/' });
		assert.deepEqual(tree.prefixes, ['list/d/', 'list/ü/']);
		assert.deepEqual(tree.objects.map(o => o.name), ['list/a', 'list/b c', 'list/e+f', 'list/g&<']);
		assert.equal(tree.objects[0].type, 'Normal');
		assert.equal(tree.objects[0].size, 6);
		// V2, page by page, also over common prefixes.
		all = [];
		let token, pages = 0;
		do {
			const page = await client.listV2({ prefix: 'list/', delimiter: '/', 'max-keys': 1,
				...(token ? { 'continuation-token': token } : {}) });
			all.push(...(page.objects || []).map(o => o.name), ...(page.prefixes || []));
			assert.equal(page.keyCount, 1);
			token = page.nextContinuationToken;
			pages++;
		} while (token);
		assert.deepEqual(all, ['list/a', 'list/b c', 'list/d/', 'list/e+f', 'list/g&<', 'list/ü/']);
		assert.equal(pages, 6);
		const after = await client.listV2({ prefix: 'list/', 'start-after': 'list/d/1' });
		assert.equal(after.objects[0].name, 'list/d/2');
		await refused(client.list({ 'max-keys': 1001 }), 400, 'InvalidArgument');
	},

	async copies() {
		const body = data(5000);
		await client.put('src ü+', body, { meta: { a: '1' }, mime: 'text/one' });
		await client.copy('dst', 'src ü+');
		let head = await client.head('dst');
		assert.deepEqual(head.meta, { a: '1' });
		assert.ok(body.equals((await client.get('dst')).content));
		await client.copy('dst2', 'src ü+', { meta: { b: '2' }, headers: { 'Content-Type': 'text/two' } });
		head = await client.head('dst2');
		assert.deepEqual(head.meta, { b: '2' });
		assert.equal(head.res.headers['content-type'], 'text/two');
		await client.putMeta('dst2', { c: '3' });
		assert.deepEqual((await client.head('dst2')).meta, { c: '3' });
		assert.ok(body.equals((await client.get('dst2')).content));
		await refused(client.copy('x', 'no-such-source'), 404, 'NoSuchKey');
		await refused(client.copy('x', 'dst', { headers: { 'If-Match': '"0"' } }), 412, 'PreconditionFailed');
	},

	async appends() {
		const one = data(3000), two = data(111);
		let r = await client.append('log', one);
		assert.equal(r.nextAppendPosition, '3000');
		r = await client.append('log', two, { position: 3000 });
		assert.equal(r.nextAppendPosition, '3111');
		await refused(client.append('log', two, { position: 5 }), 409, 'PositionNotEqualToLength');
		assert.ok(Buffer.concat([one, two]).equals((await client.get('log')).content));
		assert.equal((await client.head('log')).res.headers['x-oss-object-type'], 'Appendable');
		await client.put('normal', one);
		await refused(client.append('normal', two, { position: 3000 }), 409, 'ObjectNotAppendable');
	},

	async multiparts() {
		const body = data((1 << 20) * 2 + 12345);
		const file = path.join(os.tmpdir(), `ali-oss-mp-${process.pid}`);
		fs.writeFileSync(file, body);
		const steps = [];
		const done = await client.multipartUpload('mp/big', file, {
			partSize: 500 * 1024, parallel: 3, meta: { m: 'p' }, progress: p => { steps.push(p); },
		});
		fs.unlinkSync(file);
		assert.match(done.etag, /^"[0-9A-F]{32}-5"$/);
		assert.equal(steps.at(-1), 1);
		assert.ok(body.equals((await client.get('mp/big')).content));
		const head = await client.head('mp/big');
		assert.equal(head.res.headers['x-oss-object-type'], 'Multipart');
		assert.deepEqual(head.meta, { m: 'p' });

		const { uploadId } = await client.initMultipartUpload('mp/steps');
		const first = body.subarray(0, 102400), last = body.subarray(102400, 102405);
		const parts = [];
		for (const [i, piece] of [first, last].entries()) {
			const r = await client.uploadPart('mp/steps', uploadId, i + 1, piece, 0, piece.length);
			assert.equal(r.etag, `"${md5(piece)}"`);
			parts.push({ number: i + 1, etag: r.etag });
		}
		const listed = await client.listParts('mp/steps', uploadId);
		assert.deepEqual(listed.parts.map(p => [p.PartNumber, p.Size]), [['1', '102400'], ['2', '5']]);
		const open = await client.listUploads({ 'max-uploads': 10, prefix: 'mp/' });
		assert.deepEqual(open.uploads.map(u => [u.name, u.uploadId]), [['mp/steps', uploadId]]);
		await refused(client.completeMultipartUpload('mp/steps', uploadId,
			[{ number: 1, etag: '"00000000000000000000000000000000"' }]), 400, 'InvalidPart');
		await client.completeMultipartUpload('mp/steps', uploadId, parts);
		assert.ok(body.subarray(0, 102405).equals((await client.get('mp/steps')).content));
		await refused(client.listParts('mp/steps', uploadId), 404, 'NoSuchUpload');

		const aborted = await client.initMultipartUpload('mp/gone');
		await client.abortMultipartUpload('mp/gone', aborted.uploadId);
		await refused(client.abortMultipartUpload('mp/gone', aborted.uploadId), 404, 'NoSuchUpload');

		await client.multipartUploadCopy('mp/copy', { sourceKey: 'mp/big', sourceBucketName: bucket },
			{ partSize: 1 << 20 });
		assert.ok(body.equals((await client.get('mp/copy')).content));
	},

	async symlinks() {
		await client.put('target', Buffer.from('content'));
		await client.putSymlink('link', 'target', { meta: { l: '1' } });
		assert.equal((await client.getSymlink('link')).targetName, 'target');
		const got = await client.get('link');
		assert.equal(String(got.content), 'content');
		assert.equal(got.res.headers['x-oss-object-type'], 'Symlink');
		await refused(client.getSymlink('target'), 400, 'NotSymlink');
		await client.putSymlink('dangling', 'nowhere');
		await refused(client.get('dangling'), 404, 'SymlinkTargetNotExist');
	},

	async aclAndTags() {
		await client.put('tagged', Buffer.from('t'));
		assert.equal((await client.getACL('tagged')).acl, 'default');
		await client.putACL('tagged', 'public-read');
		assert.equal((await client.getACL('tagged')).acl, 'public-read');
		await client.putObjectTagging('tagged', { a: '1', 'b c': 'd/e' });
		assert.deepEqual((await client.getObjectTagging('tagged')).tag, { a: '1', 'b c': 'd/e' });
		assert.equal((await client.head('tagged')).res.headers['x-oss-tagging-count'], '2');
		await client.deleteObjectTagging('tagged');
		assert.deepEqual((await client.getObjectTagging('tagged')).tag, {});
		// Anonymous: the object is public now, its neighbour is not.
		assert.equal((await plain('GET', objectUrl('tagged'))).status, 200);
		const closed = await plain('GET', objectUrl('target'));
		assert.equal(closed.status, 403);
		assert.match(closed.body, /<Code>AccessDenied<\/Code>/);
		assert.equal((await plain('PUT', objectUrl('tagged'), 'x')).status, 403);
	},

	async signedUrls() {
		await client.put('sign/a b+ü', Buffer.from('signed'));
		// The client makes no URLs for an endpoint that is an address.
		const named = new OSS({ ...options, endpoint: `http://localhost:${url.port}` });
		const sign = (name, method, extra = {}) => version === 'v4'
			? named.signatureUrlV4(method, 60, extra, name)
			: Promise.resolve(named.signatureUrl(name, { method, expires: 60, 'Content-Type': extra.headers?.['content-type'] }));
		let r = await plain('GET', await sign('sign/a b+ü', 'GET'));
		assert.equal(r.status, 200, r.body);
		assert.equal(r.body, 'signed');
		r = await plain('PUT', await sign('sign/put', 'PUT'), 'by url');
		assert.equal(r.status, 200, r.body);
		assert.equal(String((await client.get('sign/put')).content), 'by url');
		r = await plain('GET', (await sign('sign/put', 'GET')).replace('sign/put', 'sign/other'));
		assert.equal(r.status, 403);
		assert.match(r.body, /<Code>SignatureDoesNotMatch<\/Code>.*<StringToSign>/s);
	},

	async errors() {
		await refused(client.get('no-such-key'), 404, 'NoSuchKey');
		await refused(client.head('no-such-key'), 404);
		const wrong = new OSS({ ...options, accessKeySecret: 'wrong' });
		await refused(wrong.get('cond'), 403, 'SignatureDoesNotMatch');
		const unknown = new OSS({ ...options, accessKeyId: 'nobody' });
		await refused(unknown.get('cond'), 403, 'InvalidAccessKeyId');
		const other = new OSS({ ...options, bucket: 'no-such-bucket-here' });
		await refused(other.get('x'), 404, 'NoSuchBucket');
		await refused(client.deleteBucket(bucket), 409, 'BucketNotEmpty');
		await refused(client.getBucketLifecycle(bucket), 404);
		await refused(client.put('x', Buffer.from('y'), { headers: { 'Content-MD5': md5base64('z') } }),
			400, 'InvalidDigest');
		const sts = new OSS({ ...options, accessKeyId: 'STS.session', accessKeySecret: 'session-secret',
			stsToken: 'the/token+=' });
		assert.equal(String((await sts.get('cond')).content), 'x');
		const forged = new OSS({ ...options, accessKeyId: 'STS.session', accessKeySecret: 'session-secret',
			stsToken: 'another' });
		await refused(forged.get('cond'), 403, 'InvalidSecurityToken');
	},

	async deletes() {
		await client.delete('cond');
		await client.delete('cond'); // 204 for what is not there
		await refused(client.head('cond'), 404);
		const left = async () => (await client.listV2({ 'max-keys': 1000 })).objects || [];
		const names = (await left()).map(o => o.name);
		assert.ok(names.length > 20);
		const some = await client.deleteMulti(names.slice(0, 3));
		assert.deepEqual(some.deleted.map(d => d.Key), names.slice(0, 3));
		await client.deleteMulti(names.slice(3), { quiet: true });
		assert.equal((await left()).length, 0);
		await client.deleteBucket(bucket);
		await refused(client.getBucketInfo(bucket), 404, 'NoSuchBucket');
	},
};

const md5base64 = text => crypto.createHash('md5').update(text).digest('base64');

function plain(method, where, body) {
	return new Promise((resolve, reject) => {
		const req = http.request(where, { method, agent }, res => {
			const chunks = [];
			res.on('data', c => chunks.push(c));
			res.on('end', () => resolve({ status: res.statusCode, body: String(Buffer.concat(chunks)) }));
		});
		req.on('error', reject);
		req.end(body);
	});
}

(async () => {
	for (const [name, run] of Object.entries(cases)) {
		try {
			await run();
		} catch (error) {
			console.error(`FAIL ${version} ${style} ${name}:`, error);
			process.exit(1);
		}
	}
	console.log(`${version} ${style}: ${Object.keys(cases).length} cases`);
	process.exit(0);
})();
