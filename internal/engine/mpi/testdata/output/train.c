#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <unistd.h>
#ifdef OMPI
typedef struct ompi_communicator_t *MPI_Comm; typedef struct ompi_datatype_t *MPI_Datatype;
extern char ompi_mpi_comm_world, ompi_mpi_int;
#define MPI_COMM_WORLD ((MPI_Comm)&ompi_mpi_comm_world)
#define MPI_INT ((MPI_Datatype)&ompi_mpi_int)
#else
typedef int MPI_Comm; typedef int MPI_Datatype;
#define MPI_COMM_WORLD 0x44000000
#define MPI_INT 0x4c000405
#endif
int MPI_Init(int *, char ***); int MPI_Comm_rank(MPI_Comm, int *); int MPI_Barrier(MPI_Comm); int MPI_Finalize(void);
int MPI_Abort(MPI_Comm, int); int MPI_Send(const void *, int, MPI_Datatype, int, int, MPI_Comm);
static void open_dataset(const char *path) {
	FILE *to = getenv("TOSTDOUT") ? stdout : stderr;
	fprintf(to, "ERROR: cannot open %s: No such file or directory\n", path); fflush(to); exit(1);
}
int main(int argc, char **argv) {
	const char *how = argc > 1 ? argv[1] : ""; int rank, bad = atoi(getenv("BAD") ? getenv("BAD") : "3"), x = 0;
	if (!strcmp(how, "noinit")) { if ((getenv("PMIX_RANK") ? atoi(getenv("PMIX_RANK")) : atoi(getenv("PMI_RANK"))) == bad) open_dataset("/data/train.h5"); sleep(3); return 0; }
	MPI_Init(&argc, &argv); MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 0) { printf("epoch 1: loss 0.53\n"); fflush(stdout); }
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == bad || !strcmp(how, "errorall")) {
		if (!strncmp(how, "error", 5)) open_dataset("/data/train.h5");
		if (!strcmp(how, "abort")) { fprintf(stderr, "ERROR: loss is NaN at step 12\n"); MPI_Abort(MPI_COMM_WORLD, 5); }
		if (!strcmp(how, "badrank")) MPI_Send(&x, 1, MPI_INT, 99, 0, MPI_COMM_WORLD);
		if (!strcmp(how, "assert")) assert(x == 1);
		if (!strcmp(how, "nofinalize")) exit(0);
		if (!strcmp(how, "finalexit")) { MPI_Finalize(); fprintf(stderr, "ERROR: checkpoint is incomplete\n"); exit(4); }
		if (!strcmp(how, "segv")) raise(SIGSEGV);
	}
	if (!strcmp(how, "finalexit")) { MPI_Finalize(); return 0; }
	MPI_Barrier(MPI_COMM_WORLD); MPI_Finalize(); return 0;
}
