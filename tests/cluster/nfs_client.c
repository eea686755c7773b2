/* An NFS version 4 client as a FUSE file system, for kernels that have none: libnfs speaks with the
   server, and FUSE with the kernel. One thread, and no cache: what one host writes all others see.

   nfs_client nfs://SERVER/PATH?version=4 DIRECTORY [options of FUSE] */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <nfsc/libnfs.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <utime.h>

static struct nfs_context *server;

static struct nfsfh *handle_of(struct fuse_file_info *info) {
    return (struct nfsfh *)(uintptr_t)info->fh;
}

static void fill(struct stat *out, const struct nfs_stat_64 *from) {
    memset(out, 0, sizeof *out);
    out->st_ino = from->nfs_ino;
    out->st_mode = from->nfs_mode;
    out->st_nlink = from->nfs_nlink;
    out->st_uid = from->nfs_uid;
    out->st_gid = from->nfs_gid;
    out->st_size = from->nfs_size;
    out->st_blksize = from->nfs_blksize;
    out->st_blocks = from->nfs_blocks;
    out->st_mtime = from->nfs_mtime;
    out->st_atime = from->nfs_atime;
    out->st_ctime = from->nfs_ctime;
    /* Names of users, as version 4 sends them, mean nothing here: all belongs to root. */
    out->st_uid = out->st_gid = 0;
}

static int get_attributes(const char *path, struct stat *out, struct fuse_file_info *info) {
    struct nfs_stat_64 found;
    int code = info ? nfs_fstat64(server, handle_of(info), &found) : nfs_lstat64(server, path, &found);
    if (code == 0)
        fill(out, &found);
    return code;
}

static int read_directory(const char *path, void *buffer, fuse_fill_dir_t add, off_t offset,
                          struct fuse_file_info *info, enum fuse_readdir_flags flags) {
    struct nfsdir *directory;
    struct nfsdirent *entry;
    int code = nfs_opendir(server, path, &directory);
    (void)offset, (void)info, (void)flags;
    if (code)
        return code;
    while ((entry = nfs_readdir(server, directory)) != NULL)
        add(buffer, entry->name, NULL, 0, 0);
    nfs_closedir(server, directory);
    return 0;
}

static int open_file(const char *path, struct fuse_file_info *info) {
    struct nfsfh *file;
    int code = nfs_open(server, path, info->flags & ~(O_CREAT | O_APPEND), &file);
    info->fh = (uintptr_t)file;
    info->direct_io = 1;
    return code;
}

static int create_file(const char *path, mode_t mode, struct fuse_file_info *info) {
    struct nfsfh *file;
    int code = nfs_open2(server, path, info->flags | O_CREAT, mode, &file);
    info->fh = (uintptr_t)file;
    info->direct_io = 1;
    return code;
}

static int read_file(const char *path, char *buffer, size_t size, off_t offset,
                     struct fuse_file_info *info) {
    (void)path;
    return nfs_pread(server, handle_of(info), offset, size, buffer);
}

static int write_file(const char *path, const char *buffer, size_t size, off_t offset,
                      struct fuse_file_info *info) {
    (void)path;
    return nfs_pwrite(server, handle_of(info), offset, size, (void *)buffer);
}

static int flush_file(const char *path, int only_data, struct fuse_file_info *info) {
    (void)path, (void)only_data;
    return nfs_fsync(server, handle_of(info));
}

static int close_file(const char *path, struct fuse_file_info *info) {
    (void)path;
    return nfs_close(server, handle_of(info));
}

static int make_directory(const char *path, mode_t mode) { return nfs_mkdir2(server, path, mode); }
static int remove_file(const char *path) { return nfs_unlink(server, path); }
static int remove_directory(const char *path) { return nfs_rmdir(server, path); }
static int link_to(const char *target, const char *path) { return nfs_symlink(server, target, path); }

static int read_link(const char *path, char *buffer, size_t size) {
    return nfs_readlink(server, path, buffer, (int)size);
}

static int rename_file(const char *from, const char *to, unsigned int flags) {
    return flags ? -EINVAL : nfs_rename(server, from, to);
}

static int truncate_file(const char *path, off_t size, struct fuse_file_info *info) {
    return info ? nfs_ftruncate(server, handle_of(info), size) : nfs_truncate(server, path, size);
}

static int change_mode(const char *path, mode_t mode, struct fuse_file_info *info) {
    (void)info;
    return nfs_chmod(server, path, mode);
}

static int set_times(const char *path, const struct timespec times[2], struct fuse_file_info *info) {
    struct timeval both[2] = {{times[0].tv_sec, 0}, {times[1].tv_sec, 0}};
    (void)info;
    return nfs_utimes(server, path, both);
}

static int room(const char *path, struct statvfs *out) { return nfs_statvfs(server, path, out); }

static const struct fuse_operations operations = {
    .getattr = get_attributes, .readdir = read_directory, .open = open_file, .create = create_file,
    .read = read_file, .write = write_file, .fsync = flush_file, .release = close_file,
    .mkdir = make_directory, .unlink = remove_file, .rmdir = remove_directory, .symlink = link_to,
    .readlink = read_link, .rename = rename_file, .truncate = truncate_file, .chmod = change_mode,
    .utimens = set_times, .statfs = room,
};

int main(int argc, char **argv) {
    struct nfs_url *url;
    if (argc < 3)
        return 2;
    server = nfs_init_context();
    url = nfs_parse_url_dir(server, argv[1]);
    if (url == NULL || nfs_mount(server, url->server, url->path) != 0) {
        fprintf(stderr, "mount.nfs4: %s\n", nfs_get_error(server));
        return 32;
    }
    argv[1] = argv[0];
    return fuse_main(argc - 1, argv + 1, &operations, NULL);
}
